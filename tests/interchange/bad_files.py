"""Text of models that is wrong somewhere, and what is said of it: in LIBLINEAR's format and in VW's."""

from __future__ import annotations

HEADER = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias 1\nw\n"

LIBLINEAR = [
    ("svm_type c_svc\n", ":1: not a LIBLINEAR model: expected solver_type first, got 'svm_type c_svc'"),
    (HEADER.replace("L2R_LR", "L3"), ":1: solver_type 'L3': expected one of L2R_LR, "),
    (HEADER.replace("L2R_LR", "ONECLASS_SVM"), ":1: solver_type 'ONECLASS_SVM': expected one of"),
    (HEADER + "1\n2\n", ": cut short: 2 lines of weights, nr_feature and bias call for 3"),
    (HEADER + "1\n2\n3\n4\n", ":10: more weights than the 3 lines that nr_feature and bias call for"),
    (HEADER + "1\n2 3\n3\n", ":8: 2 weights, expected 1"),
    (HEADER + "1\nnan\n3\n", ":8: 'nan': expected a number that fits float32"),
    (HEADER + "1\ninf\n3\n", ":8: 'inf': expected a number that fits float32"),
    (HEADER + "1\n1e39\n3\n", ":8: '1e39': expected a number that fits float32"),
    (HEADER + "1\n1_0\n3\n", ":8: '1_0': expected a number that fits float32"),
    (HEADER.replace("nr_feature 2", f"nr_feature {10**18}") + "1\n", ": cut short: 1 lines of weights"),
    (HEADER.replace("nr_feature 2", "nr_feature -2") + "1\n", ":4: nr_feature '-2': expected a whole number"),
    (HEADER.replace("nr_feature 2", "nr_feature 1e9") + "1\n", ":4: nr_feature '1e9': expected a whole number"),
    (HEADER.replace("nr_class 2", f"nr_class {10**18}") + "1\n", f":3: 2 labels, but nr_class is {10**18}"),
    (HEADER.replace("label 1 -1", "label 1 1") + "1\n2\n3\n", ": label 1 stands for more than one class"),
    (HEADER.replace("label 1 -1", "label 1 x") + "1\n2\n3\n", ":3: 'x': expected a number that fits float32"),
    (HEADER.replace("1 -1", "1").replace("class 2", "class 1") + "1\n2\n3\n", ": one class, 1: expected two"),
    (HEADER.replace("label 1 -1\n", "") + "1\n2\n3\n", ": L2R_LR without labels: expected the contrary"),
    (HEADER.replace("L2R_LR", "L2R_L2LOSS_SVR") + "1\n2\n3\n", ": L2R_L2LOSS_SVR with labels: expected"),
    (HEADER.replace("bias 1", "bias 1\nbias 1"), ":6: bias for the second time"),
    (HEADER.replace("bias 1", "rho 1"), ":5: 'rho': expected one of solver_type"),
    (HEADER.replace("bias 1\n", ""), ": not a whole LIBLINEAR model: no bias"),
    (HEADER.replace("w\n", ""), ": not a whole LIBLINEAR model: no w"),
    (HEADER + "1\n\0\n3\n", ":8: not text: a zero byte"),
]

#: Lines 1 to 10 of a readable model of VW; the options are left open.
HEAD = "Version 9.11.9\nId \nMin label:-2\nMax label:3\nbits:18\nlda:0\n0 ngram:\n0 skip:\noptions:{}\nChecksum: 1\n"


def vw_text(weights: str, options: str = "", state: str = "") -> str:
    return HEAD.format(options) + f":{int(bool(state))}\n{state}{weights}"


VW = [
    ("1 | 3:4\n", ":1: not a readable model of VW: expected its version, got '1 | 3:4'"),
    (HEAD.format(""), ": not a whole readable model of VW: no line :0 or :1"),
    (vw_text("1:1\n").replace("bits:18\n", ""), ": not a readable model of VW: no line bits:B"),
    (vw_text("1:1\n").replace("bits:18", "bits:99"), ": not a readable model of VW: no line bits:B"),
    (vw_text("1:1\n").replace("bits:18", "bits:x"), ":5: bits 'x': expected a whole number"),
    (vw_text("1:1\n").replace("0 ngram", "2 ngram"), ":7: 2 ngram:: a model with ngram is not linear"),
    (vw_text("1:1\n").replace("lda:0", "lda:5"), ":6: lda:5: a model with lda is not linear"),
    (vw_text("1:1\n", "--quadratic ::"), ":9: made with --quadratic ::: only plain linear models, --oaa and --csoaa"),
    (vw_text("1:1\n", "--hash all"), ":9: made with --hash all: only plain linear models"),
    (vw_text("1:1\n", "--oaa 1"), ":9: --oaa 1: expected two classes or more"),
    (vw_text("1:1\n", "--oaa 999999999"), ":9: --oaa 999999999: expected two classes or more, a million at most"),
    (vw_text("1:1\n", "--oaa 300000"), ": 300000 classes do not fit 2^18 weights"),
    (vw_text("1:1\n", "--oaa 3 --csoaa 3"), ":9: made with --oaa and --csoaa"),
    (vw_text("1:1\n", "'"), ":9: options: No closing quotation"),
    (vw_text("1:nan\n"), ":12: 'nan': expected a number that fits float32"),
    (vw_text("1:1\n2:1e50\n"), ":13: '1e50': expected a number that fits float32"),
    (vw_text("1:1\nnonsense\n"), ":13: 'nonsense': expected [name:]feature:weight"),
    (vw_text("5:x:y\n1:1\n"), ":12: '5:x:y': expected [name:]feature:weight"),
    (vw_text("300000:1\n"), ":12: feature 300000: expected one below 2^18"),
    (vw_text("99999999999999999999:1\n"), ":12: feature '99999999999999999999': expected a whole number"),
    (vw_text("0:1\n"), ":12: feature 0, and hogwild's are numbered from 1: add --zero-based"),
    (vw_text("1:1\n1:2\n"), ": feature 1 has two different weights"),
    (vw_text("7:1\n", "--oaa 3"), ":12: a weight of class 4 of 3"),
    (vw_text("3000000000:1\n").replace("bits:18", "bits:40"), ": 3,000,000,000 features: expected at most 2,147,"),
]

#: (format, text, message)
BAD_FILES = [(name, *case) for name, cases in (("liblinear", LIBLINEAR), ("vw", VW)) for case in cases]
