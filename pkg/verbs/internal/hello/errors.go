package hello

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// StreamError names the error of package verbs for one of the socket; others stay as they are.
func StreamError(err error) error {
	var ne net.Error
	var sys *os.SyscallError
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return fmt.Errorf("%w: %w", verbs.ErrTimeout, err)
	case errors.As(err, &ne), errors.As(err, &sys), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", verbs.ErrDisconnected, err)
	}
	return err
}
