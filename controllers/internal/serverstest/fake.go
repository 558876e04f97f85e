// Package serverstest has memory and compute servers that live in memory, for tests of controllers.
// They keep what real ones keep and refuse what real ones refuse.
package serverstest

import (
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/controllers/internal/pki"
	"github.com/dmindex/dmindex/controllers/internal/servers"
)

// Fleet is all servers of a test, by the UID of their pods. A server comes to be when it is first
// spoken to.
type Fleet struct {
	mu      sync.Mutex
	next    uint64
	memory  map[string]*memory
	mounted map[string]string // UIDs of claims, by those of pods
	copies  map[string]*copyServer
	compute map[string]*compute
	away    map[string]bool   // by namespace/pod: does not answer
	problem map[string]string // by namespace/pod: why it cannot start on its node

	loads map[string]*rpcv1.ComputeLoad  // by namespace/pod
	paths map[string][]*rpcv1.MemoryPath // by namespace/pod
	acls  map[string][]byte              // digests, by namespace/pod
	users map[string][]byte              // digests of the files of DMUsers, by namespace/pod
	trust map[string]trust               // by namespace/pod

	ranges map[string][]*rpcv1.OwnedRange // by namespace/pod

	heldBack bool // copies that join do not get all

	behind []string // clients that do not follow when servers join

	looks int // how often a server was asked what it is

	// Chunks is how many chunks each memory server has.
	Chunks uint64

	// Locks is how many locks each memory server has; OnChip of them lie in its NIC's memory.
	Locks, OnChip uint64

	// Holdings are what the home of an index lists under a partition map, as designs do whose
	// ranges have owners; nil: nothing ever.
	Holdings func(encoded []byte) []*rpcv1.Holding

	// Older makes the servers those of a version that offers neither AwaitHoldings nor TLS on the
	// fabric.
	Older bool

	changed chan struct{} // closed and replaced by HoldingsChanged

	// Calls that change something, in order: "swap 2", "drain demo-compute-1", ...
	Calls []string
}

// New is a fleet without servers.
func New() *Fleet {
	return &Fleet{memory: map[string]*memory{}, mounted: map[string]string{}, copies: map[string]*copyServer{}, compute: map[string]*compute{}, away: map[string]bool{}, problem: map[string]string{}, loads: map[string]*rpcv1.ComputeLoad{}, paths: map[string][]*rpcv1.MemoryPath{}, acls: map[string][]byte{}, users: map[string][]byte{}, trust: map[string]trust{}, ranges: map[string][]*rpcv1.OwnedRange{}, changed: make(chan struct{}), Chunks: 64, Locks: 1024}
}

const chunkBytes = 8 << 20

type compute struct {
	index      string
	generation uint64
	draining   bool
	dataLost   string
}

// SetAway makes the server of a pod answer no more, or again.
func (f *Fleet) SetAway(namespace, pod string, away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away[namespace+"/"+pod] = away
}

// SetProblem makes the server of a pod answer that it cannot start on its node; "" = it can.
func (f *Fleet) SetProblem(namespace, pod, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem[namespace+"/"+pod] = why
}

// Problem is what SetProblem said last.
func (f *Fleet) Problem(namespace, pod string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem[namespace+"/"+pod]
}

// unfit is what the server of a pod answers that cannot start.
func (f *Fleet) unfit(t servers.Target) error {
	if why := f.problem[t.Namespace+"/"+t.Pod]; why != "" {
		return &servers.Unfit{Why: why}
	}
	return nil
}

// SetLoad makes the compute servers of pods say such a load, each of them, from the same moment on.
func (f *Fleet) SetLoad(namespace string, load *rpcv1.ComputeLoad, pods ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pod := range pods {
		f.loads[namespace+"/"+pod] = load
	}
}

// SetACL says which ACL file a compute server has read.
func (f *Fleet) SetACL(namespace, pod, acl string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	digest := sha256.Sum256([]byte(acl))
	f.acls[namespace+"/"+pod] = digest[:]
}

// SetUsers says which file of DMUsers a compute server has read.
func (f *Fleet) SetUsers(namespace, pod, acl string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	digest := sha256.Sum256([]byte(acl))
	f.users[namespace+"/"+pod] = digest[:]
}

// trust is what a server says of authorities.
type trust struct {
	authorities [][]byte
	signer      []byte
}

// SetTrust says which files a server has read: an identity.AuthoritiesFile, and its certificate.
// One that has read none does as those of older versions do.
func (f *Fleet) SetTrust(namespace, pod string, authorities, certificate []byte) error {
	var t trust
	for block, rest := pem.Decode(authorities); block != nil; block, rest = pem.Decode(rest) {
		digest := sha256.Sum256(block.Bytes)
		t.authorities = append(t.authorities, digest[:])
	}
	cert, err := pki.Parse(certificate)
	if err != nil {
		return err
	}
	t.signer = cert.AuthorityKeyId
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trust[namespace+"/"+pod] = t
	return nil
}

// SetPaths lets the compute server of a pod reach memory servers by these.
func (f *Fleet) SetPaths(namespace, pod string, paths ...*rpcv1.MemoryPath) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.paths[namespace+"/"+pod] = paths
}

// SetRanges lets the compute server of a pod say that it holds these.
func (f *Fleet) SetRanges(namespace, pod string, ranges ...*rpcv1.OwnedRange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ranges[namespace+"/"+pod] = ranges
}

// HoldingsChanged says that Holdings returns something else now.
func (f *Fleet) HoldingsChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Forget makes the memory server of a pod lose its content.
func (f *Fleet) Forget(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.memory, f.holderLocked(uid))
}

// Mount gives the memory server of a pod the disk of a claim, with what it has. The server is named
// by the claim, and its process is another one than that of the pod before.
func (f *Fleet) Mount(uid, claim string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mounted[uid] = claim
}

// holderLocked is what has the memory of a pod's server: its claim, or the pod.
func (f *Fleet) holderLocked(uid string) string {
	if claim := f.mounted[uid]; claim != "" {
		return claim
	}
	return uid
}

func (f *Fleet) holder(uid string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.holderLocked(uid)
}

// Lend puts another memory server, without content, in the place of that of a pod, until back is
// called.
func (f *Fleet) Lend(uid string) (back func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.memory[f.holderLocked(uid)]
	delete(f.memory, f.holderLocked(uid))
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.memory[f.holderLocked(uid)] = was
	}
}

// Serve makes the compute server of a pod open an index, as one that starts does.
func (f *Fleet) Serve(uid, index string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compute[uid] = &compute{index: index}
}

// Follow makes the compute server of a pod act on a partition map.
func (f *Fleet) Follow(uid string, generation uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.compute[uid]; c != nil {
		c.generation = generation
	}
}

// Admitted are the identities at the memory server of a pod, with their quotas.
func (f *Fleet) Admitted(uid string) map[string]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	quotas := map[string]uint64{}
	if m := f.memory[f.holderLocked(uid)]; m != nil {
		for index, a := range m.indexes {
			quotas[index] = a.quota
		}
	}
	return quotas
}

// Use makes an index use so many chunks of the memory server of a pod.
func (f *Fleet) Use(uid, index string, chunks uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory[f.holderLocked(uid)].indexes[index].used = chunks
}

// Register makes a client of an index known to its home, the memory server of a pod, and returns
// its number.
func (f *Fleet) Register(uid, index, name string) uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.memory[f.holderLocked(uid)].indexes[index]
	client := uint32(len(a.clients) + 1)
	a.clients = append(a.clients, &rpcv1.ClientUse{Client: client, Name: name})
	return client
}

// Fenced are the clients of an index that are fenced at the memory server of a pod.
func (f *Fleet) Fenced(uid, index string) (clients []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.memory[f.holderLocked(uid)]; m != nil && m.indexes[index] != nil {
		for _, c := range m.indexes[index].clients {
			if c.Fenced {
				clients = append(clients, c.Client)
			}
		}
	}
	return clients
}

// Looks is how often a memory server was asked what it is: it shows that reconcilers ran.
func (f *Fleet) Looks() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks
}

// Changes are the calls so far.
func (f *Fleet) Changes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.Calls)
}

// Memory implements servers.Dialer.
func (f *Fleet) Memory(t servers.Target) (servers.Memory, error) {
	if t.Authority == nil || t.UID == "" || t.Address == "" {
		return nil, fmt.Errorf("dial %s: incomplete target %+v", t.Pod, t)
	}
	return &memoryClient{f, t}, nil
}

// Compute implements servers.Dialer.
func (f *Fleet) Compute(t servers.Target) (servers.Compute, error) {
	if t.Authority == nil || t.UID == "" || t.Address == "" {
		return nil, fmt.Errorf("dial %s: incomplete target %+v", t.Pod, t)
	}
	return &computeClient{f, t}, nil
}

var errAway = errors.New("does not answer")

type computeClient struct {
	f *Fleet
	t servers.Target
}

func (c *computeClient) Close() {}

func (c *computeClient) with(do func(*compute) error) error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if err := c.f.unfit(c.t); err != nil {
		return err
	}
	s := c.f.compute[c.t.UID]
	if s == nil || c.f.away[c.t.Namespace+"/"+c.t.Pod] {
		return fmt.Errorf("compute server %s %w", c.t.Pod, errAway)
	}
	return do(s)
}

func (c *computeClient) Describe(context.Context) (reply *rpcv1.DescribeComputeReply, err error) {
	err = c.with(func(s *compute) error {
		reply = &rpcv1.DescribeComputeReply{Index: s.index, MapGeneration: s.generation, Draining: s.draining, DataLost: s.dataLost, Load: c.f.loads[c.t.Namespace+"/"+c.t.Pod], Paths: c.f.paths[c.t.Namespace+"/"+c.t.Pod], Ranges: c.f.ranges[c.t.Namespace+"/"+c.t.Pod], AclDigest: c.f.acls[c.t.Namespace+"/"+c.t.Pod], ObjectsAclDigest: c.f.users[c.t.Namespace+"/"+c.t.Pod]}
		t := c.f.trust[c.t.Namespace+"/"+c.t.Pod]
		reply.TrustedAuthorities, reply.CertificateSigner = t.authorities, t.signer
		return nil
	})
	return reply, err
}

func (c *computeClient) Drain(context.Context) (unfinished uint64, err error) {
	err = c.with(func(s *compute) error {
		s.draining = true
		c.f.Calls = append(c.f.Calls, "drain "+c.t.Pod)
		return nil
	})
	return 0, err
}

func (c *computeClient) Block(_ context.Context, reason string) error {
	return c.with(func(s *compute) error {
		s.dataLost = reason
		c.f.Calls = append(c.f.Calls, "block "+c.t.Pod)
		return nil
	})
}
