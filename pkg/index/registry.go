package index

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/dmindex/dmindex/pkg/pool"
	"github.com/dmindex/dmindex/pkg/verbs"
)

// Options of an index. All but the cache's and the switches are fixed at its creation and kept in
// its superblock.
type Options struct {
	Uint64        bool // keys are 8 bytes, big-endian
	MaxKeyBytes   int  // 8 with Uint64
	MaxValueBytes int
	// longest value that lies beside its key; a longer one costs a lookup a round trip more. 0 =
	// the design's default for these lengths
	InlineBytes int
	NodeBytes   int // 0 = the design's default for these lengths
	// CHIME: in how many slots of a leaf a key can lie, from 2 to 16; 0 = 8. Other designs have
	// none
	Neighbourhood int
	CacheBytes    int // bound of the index cache of this client; 0 = the design's default

	// Switches turns techniques of the design off, by the names in Design.Switches, so that what
	// each is worth can be measured. nil or missing = on. They are this client's own matter:
	// clients with different ones may share an index.
	Switches map[string]bool
}

// Design is one of the published designs.
type Design struct {
	Name string // lower case, as in --design: "sherman"

	// Number stands for the design in two-sided requests: 1 to 255, of one design only, for good.
	Number byte

	// every client may serve every key; otherwise only the owner of its range may, and its indexes
	// are Partitioned
	SharesAll bool

	// Switches are the names of the techniques that Options.Switches can turn off, in the order in
	// which its paper adds them up.
	Switches []string

	// Executor is what memory servers do for clients of the design that ask them to; nil = nothing.
	// It knows nothing of an index but what a request says, so one serves all indexes of a server.
	// The first byte of a request is Number.
	Executor verbs.Executor

	// Open opens the index in p, or creates it if p's superblock is empty. The error wraps
	// ErrFormat when the superblock holds another design or other options.
	Open func(p *pool.Pool, o Options) (Index, error)
}

var designs = map[string]Design{}

// Register makes a design known. Packages of designs call it from init.
func Register(d Design) {
	if _, ok := designs[d.Name]; ok {
		panic("index: design registered twice: " + d.Name)
	}
	for _, name := range Names() {
		if designs[name].Number == d.Number {
			panic("index: designs " + name + " and " + d.Name + " have the same number")
		}
	}
	designs[d.Name] = d
}

// Lookup finds a design by name; the error lists those that there are.
func Lookup(name string) (Design, error) {
	d, ok := designs[name]
	if !ok {
		return Design{}, fmt.Errorf("unknown design %q: there are %v", name, Names())
	}
	return d, nil
}

// Executor answers for all registered designs: a request goes to the design that its first byte
// names. nil: none answers any.
func Executor() verbs.Executor {
	var all executors
	some := false
	for _, name := range Names() {
		d := designs[name]
		all[d.Number] = d.Executor
		some = some || d.Executor != nil
	}
	if !some {
		return nil
	}
	return &all
}

// executors are those of the designs, by their numbers.
type executors [256]verbs.Executor

// errNoExecutor is returned for a request that names no design which answers any.
var errNoExecutor = errors.New("no design of this number answers requests")

// Call implements verbs.Executor.
func (e *executors) Call(peer verbs.Peer, near verbs.Near, request, answer []byte) (int, error) {
	if len(request) == 0 || e[request[0]] == nil {
		return 0, errNoExecutor
	}
	return e[request[0]].Call(peer, near, request, answer)
}

// CheckSwitches refuses a switch that is not among those known to a design; the error lists these.
func CheckSwitches(design string, known []string, switches map[string]bool) error {
	names := make([]string, 0, len(switches))
	for name := range switches { //env:real sorted below
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("design %s has no switch %q: there are %v", design, name, known)
		}
	}
	return nil
}

// Names are the registered designs, sorted.
func Names() []string {
	names := make([]string, 0, len(designs))
	for name := range designs { //env:real sorted below
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Checker is an index that can check all of itself. Nobody may change it meanwhile.
type Checker interface {
	// Check reads every node and returns what it found, with an error if anything is not as it
	// should be. Clients that keep changes to themselves for a while (Partitioned) have to be
	// closed, or to have written back (by a Check of their own).
	Check() (Structure, error)

	// Verifies reports whether node is what the design writes to a when a is part of the index:
	// neither dead nor something half written.
	Verifies(a pool.Addr, node []byte) bool
}

// Sweeper is an index that gives back what clients that died left in its client's memory, without
// being a part of it. It does so by itself, now and then, where it has reason to.
type Sweeper interface {
	// Sweep does so now, and returns how many nodes it gave back. Operations go on meanwhile. It
	// takes a walk through all of the index, and waits for other clients: minutes, where one of
	// them does not answer and is not fenced yet.
	Sweep() (nodes int, err error)
}

// Structure is what an index consists of.
type Structure struct {
	Levels    int    // of the tree, leaves included
	Nodes     int    // reachable ones
	Unlinked  int    // nodes that only their left sibling knows: of splits under way or cut short
	NodeBytes uint64 // of the reachable nodes
	Pairs     uint64
	PairBytes uint64 // of keys and values

	Blocks     int    // of values that do not lie beside their keys
	BlockBytes uint64 // of the blocks

	Memory []Piece // the reachable nodes and blocks, sorted by address
}

// Parts are the addresses and bytes of Memory.
func (s *Structure) Parts() iter.Seq2[pool.Addr, int] {
	return func(yield func(pool.Addr, int) bool) {
		for _, p := range s.Memory {
			if !yield(p.Addr, p.Bytes) {
				return
			}
		}
	}
}

// Piece is a node of an index, or what it allocates besides.
type Piece struct {
	Addr  pool.Addr
	Bytes int
	Kind  string // one of these, or a word of the design's
}

// Kinds that many designs have.
const (
	KindInner = "inner"
	KindLeaf  = "leaf"
	KindBlock = "block" // a value that does not lie beside its key
)
