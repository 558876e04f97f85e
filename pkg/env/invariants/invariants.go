// Package invariants holds checks that production builds leave out and every test run has (build
// tag invariants). Code guards them by the constant [Enabled], so that they cost nothing where they
// are off.
package invariants

import "fmt"

// Check panics with the message if cond does not hold. Guard calls by Enabled: arguments are
// evaluated in any case.
func Check(cond bool, format string, args ...any) {
	if !cond {
		panic("invariant violated: " + fmt.Sprintf(format, args...))
	}
}
