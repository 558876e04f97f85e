package item

import (
	"fmt"

	"github.com/dmindex/dmindex/pkg/index"
)

// Decide asks change what becomes of the pair of key, whose value is old if it is found: nothing
// (Keep), also where it is not there and was to be removed; value (Put), which fits; or that it is
// removed. An error says that what change wants cannot be.
func (c *Codec) Decide(change index.Change, key, old []byte, found bool) (value []byte, action index.Action, err error) {
	switch value, action = change(old, found); action {
	case index.Keep:
	case index.Put:
		err = c.CheckPair(key, value)
	case index.Remove:
		if !found {
			action = index.Keep
		}
	default:
		err = fmt.Errorf("%d is no action", action)
	}
	return value, action, err
}
