"""Comparisons made by hand, for tests of what is made from them."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.bench.calibration import DraftCalibration
from foredraft.bench.comparison import BenchRun, Comparison
from foredraft.bench.questions import Question
from foredraft.drafters.none import NoDrafter
from foredraft.loop.rounds import Round
from foredraft.loop.tree import TIP, Tree
from foredraft.result import Result, Statistics
from foredraft.session import Session
from foredraft.tracing import RoundTrace, TracedNode, TracedPiece

EVIL = "<script>alert('x')</script>\"&"
LEVELS = ("context", "model", "corpus", "recycled")


class Oracle(NoDrafter):
    """Knows the text: drafts the next two tokens from level "context", beside a wrong one from level "model"."""

    name = "context"
    level_names: tuple[str, ...] = ("context", "model")

    def __init__(self, text: Sequence[int]) -> None:
        self._text = list(text)

    def propose(self, context: Sequence[int], budget: int, minimum: float = 0.0) -> Tree:
        """Three nodes, but none once the text is not the one that it knows."""
        tree, following = Tree(), self._text[len(context) : len(context) + 2]
        if list(context) != self._text[: len(context)] or len(following) < 2:
            return tree
        tree.add(following[1], tree.add(following[0], TIP, 0.6), 0.5)
        tree.add(0 if following[0] else 1, TIP, 0.3, level=1)
        return tree


def knowing(session: Session, prompt: str, count: int) -> Oracle:
    """An oracle for the session's answer of ``count`` tokens."""
    return Oracle([*session.encode(prompt), *session.generate(prompt, max_tokens=count).tokens])


def a_round(probabilities: list[float], accepted: list[int]) -> Round:
    """A chain of nodes with these path probabilities, of which ``accepted`` were right."""
    tree = Tree()
    for index, probability in enumerate(probabilities):
        tree.add(index, index - 1, probability)
    return Round(tokens=[*accepted, 99], tree=tree, accepted=accepted)


def a_trace() -> tuple[RoundTrace, ...]:
    """Two rounds: the prompt's own, and one with an accepted, a rejected, and the model's own token."""
    own = RoundTrace(0, (1,), (EVIL,), (None,), (TracedPiece(EVIL, None, 0),), ())
    nodes = (
        TracedNode(2, " yes", TIP, "context", 0.8, True),
        TracedNode(3, " no\n", TIP, "model", 0.1, False),
        TracedNode(4, EVIL, 1, "corpus", 0.05, False),
        TracedNode(5, " late", 0, "recycled", 0.3, False),
    )
    pieces = (TracedPiece(" yes", "context", 0), TracedPiece(" end", None, 1))
    return own, RoundTrace(1, (2, 6), (" yes", " end"), ("context", None), pieces, nodes, 0.001, 0.02)


def a_run(
    category: str, drafter: str, seconds: float, tokens: list[int], trace: tuple[RoundTrace, ...] = ()
) -> BenchRun:
    """41 tokens: 40 rounds in plain decoding, 20 with a drafter that has one right draft in each."""
    plain = drafter == "none"
    stats = Statistics(drafter=drafter, tokens=41, rounds=40 if plain else 20, seconds_draft=0.0 if plain else 0.01)
    calibration = DraftCalibration()
    if not plain:
        stats.drafted, stats.accepted, stats.accepted_counts = 80, 20, {1: 20}
        stats.levels = dict.fromkeys(LEVELS, (20, 5))
        calibration.add(a_round([0.8, 0.3], [0]))
    question = Question(f"id-{category}", category, f"Prompt {EVIL}")
    return BenchRun(question, Result(EVIL, tokens, "length", stats), seconds, calibration, trace)


def a_comparison(drafters: tuple[str, ...] = ("none", "context", "blend"), equal: bool = True) -> Comparison:
    """Two categories; every drafter halves the time of plain decoding in both."""
    comparison = Comparison(drafters, asked=2)
    for category in ("summary", EVIL):
        runs = {}
        for name in drafters:
            tokens = list(range(41)) if equal or name != drafters[-1] else [7] * 41
            runs[name] = a_run(category, name, 4.0 if name == "none" else 2.0, tokens, a_trace())
        comparison.finished.append(runs)
    return comparison
