"""tfs-doctor: examines the hosts and the network of a job before it starts, by the same TF_CONFIG.

main, run      the command line                 findings       what can be wrong, by code
plan           the tasks of TF_CONFIG           judging/       finds what is wrong in the reports of all tasks
facts/         what a task finds on its host    table          prints them
records        what tasks tell one another      collecting     gathers what a bug report needs
link           one authenticated connection     library        loads the operations, in a process of its own
listening      the ports that a task opens
serving        accepts connections, also those of strangers
memory         whether the memory of other processes can be read
probing        attempts and round trips
node           a task: serves, and passes reports up and orders down
roster         what it knows of the others
reaching       reaches one of them, at both ports
rounds         which pairs are measured when
measuring      latency and bandwidth of one pair
examination    the root: collects the reports and judges
"""
