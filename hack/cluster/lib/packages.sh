# Debian packages that the scripts need, and how to tell that each is there without asking Debian.
# Needs: say.sh, problem()

packages_to_build() {
	cat <<'TABLE'
gcc             command -v gcc
libc6-dev       test -e /usr/include/stdio.h
pkg-config      command -v pkg-config
libseccomp-dev  pkg-config --exists libseccomp
util-linux      command -v flock
TABLE
}

packages_to_run() {
	cat <<'TABLE'
util-linux      command -v unshare nsenter setsid flock
procps          command -v pgrep
iproute2        command -v ip
nftables        command -v nft
conntrack       command -v conntrack
openssl         command -v openssl
curl            command -v curl
redis-tools     command -v redis-cli
TABLE
}

apt_limit=600 # seconds

apt() { DEBIAN_FRONTEND=noninteractive timeout $apt_limit apt-get -q -y -o Acquire::Retries=5 -o DPkg::Lock::Timeout=$apt_limit "$@"; }

apt_has_lists() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

# missing_of TABLE : the packages whose test fails. `command -v` succeeds when any of its names exists, so each is tried.
missing_of() {
	local package test name rest
	"$1" | while read -r package test; do
		case $test in
		'command -v '*)
			rest=${test#command -v }
			for name in $rest; do command -v "$name" >/dev/null || { echo "$package"; break; }; done ;;
		*) $test >/dev/null 2>&1 || echo "$package" ;;
		esac
	done
}

# install_missing TABLE
install_missing() {
	local missing log
	missing=$(missing_of "$1" | xargs)
	[ -n "$missing" ] || return 0
	if ! command -v apt-get >/dev/null; then
		problem "missing (by their Debian names): $missing. Install them with this system's own package manager"
		return
	fi
	if [ "$(id -u)" != 0 ] || [ "${DMINDEX_INSTALL:-1}" = 0 ]; then
		problem "missing Debian packages: sudo apt-get install $missing"
		return
	fi
	say "preflight: installing Debian packages: $missing (DMINDEX_INSTALL=0 prevents this)"
	log=$(mktemp)
	apt_has_lists || apt update >"$log" 2>&1 || true
	# shellcheck disable=SC2086 # several names
	if ! apt install --no-install-recommends $missing >>"$log" 2>&1; then
		apt update >>"$log" 2>&1 || true # the lists may have been too old to find anything with
		apt install --no-install-recommends $missing >>"$log" 2>&1 || true
	fi
	missing=$(missing_of "$1" | xargs)
	if [ -n "$missing" ]; then
		tail -n 5 "$log" >&2
		problem "apt-get could not install $missing (its last words are above): apt-get update && apt-get install $missing"
	fi
	rm -f "$log"
}
