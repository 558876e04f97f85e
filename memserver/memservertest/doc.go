// Package memservertest is what tests of other rooms need of a memory server: a Bare is one without
// listeners and files. Only tests import it.
package memservertest
