# Words for people. Everything goes to stderr, so that stdout stays free for what a script answers.

say()  { printf '%s\n' "$*" >&2; }
fail() { say "$(basename "$0"): $*"; exit 1; }
