package partition

// A run is adjacent pieces of one member: those at the positions from up to, not including, to.
type run struct {
	from, to int
	weight   uint64
}

// runs returns all runs, in key order, and how many bytes their starts have.
func (p *plan) runs() (all []run, bytes int) {
	for at, c := range p.pieces {
		if at == 0 || c.member != p.pieces[at-1].member {
			all = append(all, run{from: at})
			bytes += len(c.start)
		}
		last := &all[len(all)-1]
		last.to, last.weight = at+1, last.weight+c.weight
	}
	return all, bytes
}

// unite hands runs to their neighbours until there are at most so many, or each member has one. The
// lightest goes first, to the neighbour with the lower load, so balance is lost as little as
// possible. No member loses its last run, as a member without keys would be planned anew forever.
func (p *plan) unite(most int) {
	most = max(most, len(p.members))
	for {
		all, bytes := p.runs()
		if len(all) <= most && bytes <= maxSeparateBytes {
			return
		}
		of := make([]int, len(p.members)) // runs of each
		for _, r := range all {
			of[p.pieces[r.from].member]++
		}
		lightest := -1
		for i, r := range all {
			if of[p.pieces[r.from].member] > 1 && (lightest < 0 || r.weight < all[lightest].weight) {
				lightest = i
			}
		}
		if lightest < 0 {
			return
		}
		r := all[lightest]
		to, above := p.neighbour(r.from, false), p.neighbour(r.to-1, true)
		if to == free || above != free && p.load[above] < p.load[to] {
			to = above
		}
		for at := r.from; at < r.to; at++ {
			p.assign(at, to)
		}
	}
}
