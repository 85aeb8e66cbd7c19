#!/usr/bin/env bash
# Train on several machines that ssh reaches, each with hogwild installed and the same store at the same path:
#   scripts/examples/cluster/ssh.sh STORE HOST [HOST ...]
# The first host is machine 0: it prints the rows of measurements and writes the model to its own disk. Its terminal is
# yours, so Ctrl-C reaches it, and it ends the others.
set -euo pipefail
store=$1
shift
for number in $(seq 1 $(($# - 1))); do
    host=${*:number+1:1}
    ssh "$host" hogwild train "$store" --machines $# --meet "$1:29500" --machine "$number" --quiet &
done
ssh -t "$1" hogwild train "$store" --machines $# --meet "$1:29500" --machine 0 --out model.hogwild
wait
