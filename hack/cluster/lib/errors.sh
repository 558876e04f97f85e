# A script that `set -e` ends says where, also from within a function. Not for scripts that run somebody's command: its
# failure is that command's matter.
set -o errtrace
trap 'say "$(basename "$0"): line $LINENO: failed: $BASH_COMMAND"' ERR
