"""The sessions that Estimator trains with, one on each worker."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tf_strategies.collective.sessions.shared_variables import share_variables
from tf_strategies.session_graphs.final_errors import final_errors, with_final_errors

__all__ = ["GroupSessionCreator"]


class GroupSessionCreator(tf.compat.v1.train.SessionCreator):
    """Makes a session on this worker's own devices, in which the variables have the chief's values.

    The chief alone restores a checkpoint; nobody else looks for one. Making a session is a collective.

    Args:
        group: the workers.
        scaffold: what initializes, restores and saves; finalized with the first session.
        config: of the session.
        checkpoint_dir: where the chief looks for the latest checkpoint.
        checkpoint_filename_with_path: the checkpoint in place of that.

    Raises:
        Exception: one that `carried_through` turns into tfs.WorkerLostError, when a worker is lost.
    """

    def __init__(
        self,
        group,
        scaffold: tf.compat.v1.train.Scaffold,
        *,
        config: tf.compat.v1.ConfigProto,
        checkpoint_dir: Optional[str] = None,
        checkpoint_filename_with_path: Optional[str] = None,
        **_: Any,
    ) -> None:
        is_chief = group.rank == 0
        self._group = group
        self._share: Optional[tf.Operation] = None
        self._local = tf.compat.v1.train.ChiefSessionCreator(
            scaffold,
            config=config,
            checkpoint_dir=checkpoint_dir if is_chief else None,
            checkpoint_filename_with_path=checkpoint_filename_with_path if is_chief else None,
        )

    def create_session(self) -> tf.compat.v1.Session:
        if self._group.size == 1:
            return self._local.create_session()
        if self._share is None:
            # It cannot be earlier, because hooks make variables first, nor later, because the local creator finalizes the graph.
            self._share = share_variables(self._group)
        with final_errors():
            session = self._local.create_session()
            session.run(self._share)
        return with_final_errors(session)
