# One cluster a machine: its addresses and its link's name are fixed. So `up` and `down` take turns, machine-wide.

lock_machine() { # SECONDS
	exec 9>/run/dmindex-cluster.lock
	flock -w "$1" 9 || fail "another up or down is still at work on this machine after $1 s"
}
