#!/bin/sh
# A hook of enroot, to be put executable into its hooks.d: containers of PyTorch that srun starts find
# the variables of torch.distributed, by which also programs of Unisono take their places. What the
# image, the user or another hook has set stays. Neither Slurm nor Python needs to be in the image.
set -eu

# The first name of a list as Slurm writes it: node03 of node[03-05,9],gpu[1-2].
first_host() {
  rest=$1
  host=
  while [ -n "$rest" ]; do
    case $rest in
      ,*) break ;;
      \[*\]*)
        numbers=${rest#\[}
        rest=${numbers#*\]}
        numbers=${numbers%%\]*}
        host=$host${numbers%%[-,]*}
        ;;
      [\[\]]*)
        echo "50-slurm-torch: not understood: SLURM_STEP_NODELIST=$1" >&2
        return 1
        ;;
      *)
        text=${rest%%[],[]*}
        rest=${rest#"$text"}
        host=$host$text
        ;;
    esac
  done
  printf '%s\n' "$host"
}

is_in_container() { grep -q "^$1=" "$ENROOT_ENVIRON"; }

# put NAME VALUE: unless the container has the name; a value that the user has set comes first.
put() {
  if ! is_in_container "$1"; then
    value=
    eval "value=\${$1-\$2}"
    printf '%s=%s\n' "$1" "$value" >>"$ENROOT_ENVIRON"
  fi
}

is_in_container PYTORCH_VERSION || [ -n "${PYTORCH_VERSION-}" ] || exit 0
# A batch script has the other variables, too, but is no task.
[ -n "${SLURM_STEP_NODELIST-}" ] || exit 0

host=$(first_host "$SLURM_STEP_NODELIST")
put MASTER_ADDR "$host"
[ -z "${SLURM_JOB_ID-}" ] || put MASTER_PORT $((61000 + SLURM_JOB_ID % 4536))
[ -z "${SLURM_NTASKS-}" ] || put WORLD_SIZE "$SLURM_NTASKS"
[ -z "${SLURM_PROCID-}" ] || put RANK "$SLURM_PROCID"
[ -z "${SLURM_LOCALID-}" ] || put LOCAL_RANK "$SLURM_LOCALID"
tasks=${SLURM_STEP_NUM_TASKS:-${SLURM_NTASKS:-1}}
nodes=${SLURM_STEP_NUM_NODES:-${SLURM_NNODES:-1}}
[ "$tasks" -le "$nodes" ] || put OMP_NUM_THREADS 1
