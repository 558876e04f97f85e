package op

import (
	"errors"
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Failure gives an error of the pool or the fabric its name in package index. changing: requests
// that change the index were under way. Then their outcome is unknown, whatever else the error
// says, as that the client was given up since a server could not be reached.
func Failure(err error, changing bool) error {
	switch {
	case err == nil, errors.Is(err, index.ErrUnknown), errors.Is(err, index.ErrDataLost):
		return err
	case errors.Is(err, verbs.ErrLostMemory):
		return fmt.Errorf("%w: %w", index.ErrDataLost, err)
	case changing:
		return fmt.Errorf("%w: %w", index.ErrUnknown, err)
	case errors.Is(err, index.ErrUnreachable):
		return err
	case errors.Is(err, index.ErrFenced):
		if errors.Is(err, verbs.ErrDisconnected) { // this client was given up because of that
			return fmt.Errorf("%w: %w", index.ErrUnreachable, err)
		}
		return err
	case errors.Is(err, verbs.ErrClosed):
		return fmt.Errorf("%w: %w", index.ErrClosed, err)
	case errors.Is(err, verbs.ErrDisconnected), errors.Is(err, verbs.ErrTimeout),
		errors.Is(err, verbs.ErrRefused), errors.Is(err, verbs.ErrTooMany):
		return fmt.Errorf("%w: %w", index.ErrUnreachable, err)
	}
	return err
}
