package workload

// Probabilities of items.
type Probabilities struct {
	Items uint64
	ranks uint64
	z     *zipf // nil = all alike
	sum   float64
}

// NewProbabilities are those of so many items, popular as d says.
func NewProbabilities(d Distribution, items uint64) *Probabilities {
	p := &Probabilities{Items: items, ranks: d.ranksOf(items)}
	if d.Theta > 0 {
		p.z = newZipf(d.Theta, p.ranks)
		p.sum = 1
		p.sum = p.between(0, p.ranks, 1, 4096)
	}
	return p
}

// exactly is how many ranks of an item are added up one by one. The others, which are rare, are
// integrated.
const exactly = 4

// Of is the probability that item is drawn: rank r stands for item r modulo their number.
func (p *Probabilities) Of(item uint64) float64 {
	if p.z == nil {
		return 1 / float64(p.Items)
	}
	return p.between(item, p.ranks, p.Items, exactly)
}

// between is the probability of every step-th rank from one on, below another.
func (p *Probabilities) between(from, to, step uint64, one int) (sum float64) {
	for range one {
		if from >= to {
			return sum / p.sum
		}
		sum += p.z.weight(float64(from + 1))
		from += step
	}
	if n := (float64(to) - float64(from) - 1) / float64(step); n >= 0 {
		low := float64(from+1) - float64(step)/2
		high := low + float64(uint64(n)+1)*float64(step)
		sum += (p.z.integral(high) - p.z.integral(low)) / float64(step)
	}
	return sum / p.sum
}
