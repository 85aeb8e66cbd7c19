"""What a shell completes: typer's script asks the program, and the program answers."""

from __future__ import annotations

import pytest

from hogwild.__main__ import main
from hogwild.methods import LOSSES


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]),
        (["train", "--dis"], ["--discipline"]),
        (["train", "--loss", ""], [*LOSSES]),
        (["export", "model", "--to", "o"], ["onnx"]),
    ],
)
def test_bash_is_told_commands_options_and_choices(
    words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_HOGWILD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["hogwild", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code in (0, None)
    shown = capsys.readouterr()
    assert (shown.out.split(), shown.err) == (expected, "")
