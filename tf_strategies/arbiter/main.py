"""Runs the command tfs-arbiter."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import Sequence

from tf_strategies.arbiter.serving import ArbiterServer
from tf_strategies.arbiter.votes import Votes
from tf_strategies.errors import BootstrapError, ClusterConfigError
from tf_strategies.options import check_arbiter
from tf_strategies.secret import read_secret, warn_without_secret
from tf_strategies.tls import read_tls

__all__ = ["main"]

_DESCRIPTION = """Decides which half of a group goes on that was cut in two, for elastic training. Run it on a third host, and
give its address to all workers, by tfs.Elastic(arbiter="host:port") or the environment variable TF_STRATEGIES_ARBITER. It needs
the same TF_STRATEGIES_SECRET_FILE and TF_STRATEGIES_TLS as the workers, and can serve several jobs."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until a signal ends it.

    Args:
        argv: the arguments; by default those of this process.

    Returns:
        0, or 1 if it cannot start.
    """
    parser = argparse.ArgumentParser(prog="tfs-arbiter", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("address", metavar="HOST:PORT", help="the address of this host at which it listens")
    parser.add_argument(
        "--votes",
        type=Path,
        required=True,
        metavar="FILE",
        help="keeps what was decided. When the arbiter starts again, give it the same file",
    )
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ending = [each for each in _ENDING if signal.getsignal(each) != signal.SIG_IGN]  # nohup ignores SIGHUP
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)  # also in the threads of the server
    try:
        check_arbiter(arguments.address)
        secret, tls = read_secret(), read_tls()
        if not secret and tls is None:
            warn_without_secret([arguments.address])
        file = arguments.votes.absolute()
        votes = Votes(file)
        server = ArbiterServer(arguments.address, votes, secret, tls, logging.info)
        logging.info("the arbiter listens on %s; %s has %d votes", arguments.address, file, votes.count)
        signal.sigwait(ending)
        server.stop()
    except (ValueError, OSError, BootstrapError, ClusterConfigError) as error:
        print(f"tfs-arbiter: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
