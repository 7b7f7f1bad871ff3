"""A program that never becomes a worker."""
import sys

sys.exit("the model file is missing")
