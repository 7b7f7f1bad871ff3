import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import classifier  # noqa: E402
import corpus  # noqa: E402


class Classifier(unittest.TestCase):
    def test_words(self):
        self.assertEqual(classifier.words("def readLine_now(self, n1): return 'Zeile ab'"), ["def", "read", "line", "now", "self", "return", "zeile"])

    def test_training_samples_are_classified(self):
        program = classifier.train([("fruit", "apple pear apple"), ("fruit", "plum"), ("tool", "hammer saw"), ("tool", "drill saw")])
        self.assertEqual([classifier.run(program, text) for text in ("a ripe apple", "saw and apple and saw", "plum")], ["fruit", "tool", "fruit"])

    def test_frequent_label_wins_for_unknown_words(self):
        program = classifier.train([("rare", "one")] + [("often", "two")] * 5)
        self.assertEqual(classifier.run(program, "unheard"), "often")

    def test_program_is_json_of_bounded_size(self):
        program = classifier.train([("l", " ".join("w" + "abcdefghij"[n % 10] * (n // 10 + 2) for n in range(1000)))], vocabulary=20)
        self.assertEqual(len(program["labels"]["l"]["words"]), 20)
        self.assertEqual(json.loads(json.dumps(program)), program)

    def test_invalid_input_raises(self):
        for do in (lambda: classifier.run({"kind": "other"}, ""), lambda: classifier.train([]), lambda: list(corpus.samples("train", ["json.tool"]))):
            with self.assertRaises(ValueError):
                do()

    def test_accuracy_on_unseen_code(self):
        program = classifier.train(corpus.samples("train"))
        self.assertLess(len(json.dumps(program)), 500_000)
        tries = list(corpus.samples("test"))
        right = sum(classifier.run(program, text) == label for label, text in tries)
        self.assertGreater(len(tries), 200)
        self.assertGreater(right / len(tries), 0.75)


if __name__ == "__main__":
    unittest.main()
