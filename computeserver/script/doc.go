// Package script runs the scripts of EVAL: Lua 5.1 as Redis offers it, without input and output.
//
// A script is read by the parser of gopher-lua, and becomes closures (compile.go) that run on a
// machine (machine.go). The machine is not gopher-lua's, which does not bound the memory of a
// script, nor the time of one instruction: there `while true do s = s .. s end`, string.rep('x',
// 1e9), `t[60000000] = 1` and a pattern that goes back take what they take, and a context is asked
// only between instructions. A script may come from an attacker, and must not take the server's
// memory. So whatever takes time is counted as steps here, in proportion, and whatever is allocated
// is counted, and never given back. Steps are not time, so a script ends at the same place wherever
// it runs, also in the simulator.
//
// What Redis' Lua has and this one does not: metatables, coroutines, goto, the libraries struct and
// cmsgpack, and functions that load code. A script that names one fails with an error that names
// it.
//
// A Program may be run by several goroutines at once. A run belongs to one.
package script

// Bounds of a run.
const (
	// MaxText is the bytes of a script.
	MaxText = 64 << 10
	// MaxReply bounds the bytes of what a script returns.
	MaxReply = 128 << 10

	// DefaultSteps is the steps of one run: some 70 ms.
	DefaultSteps = 1 << 20
	// DefaultMemory is the bytes that one run may allocate, together.
	DefaultMemory = 16 << 20
)

// Bounds of the language: those of Lua, or lower.
const (
	maxDepth    = 200  // of nested expressions and blocks
	maxCalls    = 200  // of functions that are under way
	maxLocals   = 200  // of a function
	maxUnpacked = 7000 // values of unpack
	maxNested   = 128  // tables in tables of a reply
)
