"""Creates the session of a worker with which Estimator trains."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from tf_strategies.collective.sessions.shared_variables import share_variables
from tf_strategies.session_graphs.final_errors import final_errors, with_final_errors

__all__ = ["GroupSessionCreator"]


class GroupSessionCreator(tf.compat.v1.train.SessionCreator):
    """Creates a session on this worker's devices, in which the variables have the chief's values.

    Only the chief looks for a checkpoint and restores it. Creating a session is a collective.

    Args:
        group: the workers.
        scaffold: the scaffold, which initializes, restores and saves. The first session finalizes it.
        config: the configuration of the session.
        checkpoint_dir: the folder in which the chief looks for the latest checkpoint.
        checkpoint_filename_with_path: the checkpoint to restore instead of the latest one.

    Raises:
        Exception: a worker is lost. `carried_through` turns this error into tfs.WorkerLostError.
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
            # This is the only possible moment: hooks make variables before, and the local creator then
            # finalizes the graph.
            self._share = share_variables(self._group)
        with final_errors():
            session = self._local.create_session()
            session.run(self._share)
        return with_final_errors(session)
