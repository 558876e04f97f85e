package pool

// Places for images, in advance. In a full pool they are what makes room: a node is compacted, or
// merged with another one, only where there are places for the images of all that changes.

// StockRewrites reserves places for images of nodes of size bytes on each server, as many as the
// largest RewriteAll needs, as far as there is memory for them.
func (p *Pool) StockRewrites(size int) {
	for i := range p.members() {
		var places []Addr
		for range maxChanges {
			image, _, err := p.borrowImageOn(nil, i, size)
			if err != nil {
				break
			}
			places = append(places, image)
		}
		for _, image := range places {
			p.returnImage(image, size)
		}
	}
}

// SpareRewrites makes nodes of the places for images that nobody uses now, but for one on each
// server, and reports whether there were any.
func (p *Pool) SpareRewrites(size int) (some bool) {
	a := p.alloc
	size = roundNode(size)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range p.servers() {
		for images := a.imagesOf(i, size); len(images.free) > 1; some = true {
			last := len(images.free) - 1
			image := images.free[last]
			images.free = images.free[:last]
			images.made--
			a.giveNode(size, image)
		}
	}
	return some
}
