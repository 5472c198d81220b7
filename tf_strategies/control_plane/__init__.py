"""Forms the group of workers, compares their settings, and tells each about the end of another.

Rank 0 serves on its TF_CONFIG address; every other rank holds one stream to it for the life of the group (a
star). The stream carries small JSON messages; tensors never pass here. From the top down:

    control_plane   the public class
    member, link    one rank's side               coordinator   rank 0's side: decides
    remote_link     a member's stream (gRPC)      server        the streams of all members (gRPC)
    local_link      the same for rank 0 itself
    joining         the attempts of a member to join
    exchanging      a member gathers small objects from all
    stopping        where a member stops when one of the group wants to
    monitor, leavers                              watch the collective of a member, and wait for members that have left
    clock_offset                                  compares the clocks of a member and of rank 0
    agreement       the settings that all members must share
    channel_options, messages                     settings and the encoding of the wire
"""

from tf_strategies.control_plane.control_plane import ControlPlane
from tf_strategies.control_plane.messages import MOST_WIRES, Failure, Pace

__all__ = ["MOST_WIRES", "ControlPlane", "Failure", "Pace"]
