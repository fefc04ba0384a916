"""`python -m deedbox.testing TARGET PAYLOAD.json --by NAME`: prove an HTTP target of the settings.

In the payload's texts `{effect_id}` stands for the id of each effect. Exit code 0: it conforms, and the last line is what the
target's `proven` is to say; 1: it does not; 2: there is no such target or payload.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from deedbox.egress import EgressPolicy
from deedbox.settings import Settings
from deedbox.testing.proving import prove


def main(arguments: list[str] | None = None) -> int:
    """Run it, print the report, and say by the exit code how it went."""
    parser = argparse.ArgumentParser(prog="python -m deedbox.testing", description=__doc__)
    parser.add_argument("target", help="an HTTP target of DEEDBOX_TARGETS")
    parser.add_argument("payload", type=Path, help="a JSON file with the payload of the effects to send")
    parser.add_argument("--by", required=True, help="who answers for the run")
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds that the provider has to answer in")
    parser.add_argument("--yes", action="store_true", help="do not ask before things are made at the target")
    given = parser.parse_args(arguments)
    settings = Settings()
    config = next((target for target in settings.targets if target.name == given.target), None)
    if config is None:
        return _wrong(f"{given.target}: no such target in DEEDBOX_TARGETS")
    try:
        text = given.payload.read_text(encoding="utf-8")
        json.loads(text)
    except (OSError, ValueError) as error:
        return _wrong(f"{given.payload}: {error}")
    if not given.yes and input(f"This makes about twenty things at {config.name}. Go on? [y/N] ").strip().lower() != "y":
        return _wrong("nothing was sent")

    def payload(effect_id: str) -> dict[str, Any]:
        return json.loads(text.replace("{effect_id}", effect_id))

    try:
        policy = EgressPolicy(settings.egress_allow)
        report = asyncio.run(prove(config, payload, policy=policy, deadline_s=given.deadline))
        print(report.text())  # noqa: T201 -- a command answers on standard output
        if report.passed:
            print(f'"proven": {json.dumps(report.proven(given.by), ensure_ascii=False)}')  # noqa: T201 -- as above
    except ValueError as error:
        return _wrong(str(error))
    return 0 if report.passed else 1


def _wrong(said: str) -> int:
    print(said, file=sys.stderr)  # noqa: T201 -- as above
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
