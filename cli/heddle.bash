# Completion of the heddle tool for bash. tools/check-docs keeps its commands and options in step with the tool.

_heddle() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=
    COMPREPLY=()
    case ${COMP_WORDS[1]} in
    info) words='--memory --json --help' ;;
    bench) words='lanes faults alloc copy tensor start submit claim trace mpi --devices --seconds --rounds --quick --device --only --replay --variants --ranks --mpicc --mpiexec --json --help' ;;
    p2p) words='--devices --verdicts --again --size --samples --quick --json --nvbandwidth --progress --help' ;;
    doctor) words='--json --snapshot --from --expect --help' ;;
    report) words='--output --help' ;;
    trace) words='--all --json --peaks --why --check --export --help' ;;
    cc) words='--gpu-arch --math --no-gpu --no-cpu --ptx --emit-ptx --embed --depfile --verbose --help' ;;
    esac
    [ "$COMP_CWORD" -eq 1 ] && words='info bench p2p doctor trace report cc help --help --version'
    # file names follow where no option was begun
    case $before in
    -o | --peaks | --check | --math | --ptx | --emit-ptx | --depfile | --replay | --snapshot | --from) words= ;;
    --export) words='chrome hta pytorch' ;;
    --only)
        words='pair random holes live multi_stream threads hand_over replay free_busy beside limit reclaim unified pinned'
        [ "${COMP_WORDS[2]}" = copy ] && words='pageable pinned device box small staged submit peer'
        [ "${COMP_WORDS[2]}" = mpi ] && words='latency bandwidth allreduce beside'
        [ "${COMP_WORDS[2]}" = tensor ] && words='transpose permute slice broadcast matmul submit peers'
        ;;
    esac
    [ -z "$words" ] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _heddle heddle
