package sim

import "github.com/dmindex/dmindex/pkg/verbs"

// Break loses a connection as the fault Drop does.
func Break(c verbs.Conn) { c.(*conn).lose() }
