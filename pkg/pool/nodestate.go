package pool

// NodeState is what a client knows of a node.
type NodeState uint8

// The states of a node.
const (
	// NodeUnknown: the node lies in no open slab of this client. Nodes of a chunk that it adopts
	// are unknown until it has looked at all of them, although the memory server says that the
	// chunk is this client's.
	NodeUnknown NodeState = iota
	// NodeAvailable: the node is this client's to hand out, now or once others have dropped its
	// address. It is free, retired, a place for images, or was never handed out.
	NodeAvailable
	// NodeInUse: the node is this client's, and was handed out, by this client or by the one whose
	// chunk it adopted.
	NodeInUse
)

// NodeState is the state of the node of size bytes at addr.
func (p *Pool) NodeState(addr Addr, size int) NodeState {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.slabOf(roundNode(size), addr)
	switch {
	case b == nil:
		return NodeUnknown
	case b.index(addr) >= b.cut || b.isIdle(b.index(addr)):
		return NodeAvailable
	}
	return NodeInUse
}

// InUse are the nodes of size bytes whose state is NodeInUse.
func (p *Pool) InUse(size int) (nodes []Addr) {
	a := p.alloc
	a.mu.Lock()
	defer a.mu.Unlock()
	size = roundNode(size)
	for _, chunks := range a.chunks {
		for _, k := range chunks {
			for b := range k.open() {
				for n := 0; b.class.size == size && n < b.cut; n++ {
					if !b.isIdle(n) {
						nodes = append(nodes, b.addr(n))
					}
				}
			}
		}
	}
	return nodes
}
