#!/bin/sh
# Train both denoisers until stopped: colour alone for so many steps, on two threads, then colour
# and gray at once on one thread each. Checkpoints say how far each one is, so this is also how a
# stopped training goes on. All processes are one group, whose number is in FOLDER/pid.
set -eu
python=$1 folder=$2 head_start=$3
here=$(dirname "$(readlink -f "$0")")
if [ -e "$folder/pid" ] && kill -s 0 -- "-$(cat "$folder/pid")" 2> /dev/null; then
    echo "$folder is being trained by the process group $(cat "$folder/pid")" >&2
    exit 2
fi
echo $$ > "$folder/pid"
# Threads that wait must sleep: the core that they would spin on may be another program's.
export OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE=1
train() { exec "$python" "$here/train.py" --folder "$folder" "$@"; }

# The signal reaches the trainers too, which write a checkpoint; a second wait sees them end.
stopped=
trap 'stopped=1' TERM INT
train --kind color --threads 2 --until "$head_start" &
wait $! || [ -n "$stopped" ]
if [ -n "$stopped" ]; then
    wait
    exit
fi
train --kind color --threads 1 &
train --kind gray --threads 1 --start-from "$folder/color" &
wait
wait
