"""Is the cost model to be believed? Predicts this machine's own speeds from its measured curves, beside those measured.

    python benchmarks/simulate.py BUNDLE --questions FILE [--policies NAMES] [--drafter NAME] [--temperature T]
                                  [--max-tokens N] [--repeats N] [--threads N] [--within 0.1]

The curves are measured anew. Exits with 1 if a policy's predicted ratio to plain decoding is off by more than
``--within`` of it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from foredraft import Bundle, SamplingParams
from foredraft.bench.compare import compare
from foredraft.bench.comparison import BASELINE
from foredraft.bench.contest import Rig, between_policies, split_policies
from foredraft.bench.hardware import HERE
from foredraft.bench.host import measured_host
from foredraft.bench.questions import read_questions
from foredraft.bench.simulate import calibrated, simulate
from foredraft.engines.onnxruntime import OnnxRuntimeEngine
from foredraft.scheduling.measure import measured_parts

POLICIES = "self-spec,self-spec:draft_exit=0,draft_tokens=2,hispec,echo,tree,auto"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--drafter", default="blend")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--within", type=float, default=0.1)
    return parser.parse_args()


def main() -> None:
    chosen, console = options(), Console(highlight=False)
    bundle = Bundle.open(chosen.bundle)
    engine = OnnxRuntimeEngine(bundle, chosen.threads)
    sampling = SamplingParams(temperature=chosen.temperature)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FOREDRAFT_CACHE"] = cache
        contest = between_policies(Rig(bundle, engine), split_policies([chosen.policies]), chosen.drafter)
        *_, comparison = compare(
            bundle,
            engine,
            read_questions(chosen.questions),
            contest.names,
            max_tokens=chosen.max_tokens,
            sampling=sampling,
            repeats=chosen.repeats,
            open_session=contest.open_session,
            kind=contest.kind,
        )
        alone = measured_parts(bundle, engine, comparison.usual_context()).times
    last = len(bundle.manifest.exits)
    times, host = calibrated(comparison, alone, measured_host(bundle.manifest.model.vocab_size, sampling))
    simulation = simulate(comparison, HERE, "", times, host)
    table = Table(
        "policy",
        "ratio measured",
        "predicted",
        "off by",
        title=f"curves times {times(last, 1) / alone(last, 1):.2f}; us: {host.round * 1e6:.0f} per round, "
        f"{host.pick * 1e6:.0f} per pick, {host.opinion * 1e6:.0f} per opinion, "
        f"{host.runner_up * 1e6:.0f} per runner-up",
    )
    worst = 0.0
    for name in comparison.drafters:
        measured, predicted = comparison.summary(name)["ratio"], simulation.ratio(name)
        table.add_row(name, f"{measured:.3f}", f"{predicted:.3f}", f"{predicted / measured - 1:+.1%}")
        worst = max(worst, abs(predicted / measured - 1) if name != BASELINE else 0.0)
    console.print(table)
    console.print(f"worst: {worst:.1%}")
    raise SystemExit(1 if worst > chosen.within or comparison.unequal else 0)


if __name__ == "__main__":
    main()
