"""A program that exits before the handshake."""
import sys

sys.exit("the model file is missing")
