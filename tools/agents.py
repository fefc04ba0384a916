"""Set up what people bring who have an agent elsewhere: `python -m tools.agents`, once per change of its lock file.

Their toolkits stay out of Deedbox's own environment. `make test` runs this; where it cannot be set up it says so, and the
tests that need it skip with the same reason. It never fails: the exit code is 0.
"""

from tools.own_environment import OwnEnvironment
from tools.set_up import ROOT, SetUpError

AGENTS = OwnEnvironment(ROOT / ".make" / "agents", ROOT / "requirements" / "agents.txt", "agents")
MISSING = "the toolkits of outside agents are not set up (python -m tools.agents)"


def main() -> int:
    """Make the environment when it is not current."""
    if not AGENTS.is_current():
        print("setting up the toolkits of outside agents in .make/agents", flush=True)
        try:
            AGENTS.make()
        except (SetUpError, OSError) as error:
            print(f"{MISSING}: what drives Deedbox with them will be skipped: {error}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
