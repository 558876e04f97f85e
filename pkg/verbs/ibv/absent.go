//go:build !ibv

package ibv

import "github.com/dmindex/dmindex/pkg/verbs"

// NewDevice returns ErrNotBuilt.
func NewDevice(Options) (verbs.Device, error) { return nil, ErrNotBuilt }

// NewServer returns ErrNotBuilt.
func NewServer(Options, verbs.ServerOptions) (verbs.Server, error) { return nil, ErrNotBuilt }

// Preflight returns ErrNotBuilt.
func Preflight(Options, uint64) error { return ErrNotBuilt }
