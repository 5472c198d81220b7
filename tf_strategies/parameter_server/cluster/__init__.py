"""The processes of a parameter-server training: how workers reach servers, who is a member, and who has failed."""
