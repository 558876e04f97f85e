//go:build ibv

package ibv

// Preflight reports whether the RDMA device that o asks for can be used here, and whether as many
// bytes of memory may be registered with it. Errors: ErrNoDevice, ErrMemlock; they say what to
// change.
func Preflight(o Options, lock uint64) error {
	h, err := openHCA(o)
	if err != nil {
		return err
	}
	if err := mayLock("what the server registers with "+h.name, lock); err != nil {
		h.close()
		return err
	}
	return h.close()
}
