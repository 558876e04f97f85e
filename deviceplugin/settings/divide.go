package settings

import "github.com/dmindex/dmindex/deviceplugin/hca"

// Refused is an HCA that is not advertised.
type Refused struct {
	HCA    hca.HCA
	Reason string
}

// Divide gives each HCA to the first resource that selects it; the result has the place of each
// resource in s.Resources. HCAs that somebody else advertises are refused: by their configurations
// (Claims), or as advertised says, which gives the name of another plugin's resource.
func (s Settings) Divide(hcas []hca.HCA, advertised func(hca.HCA) (resource string, ok bool)) (given [][]hca.HCA, refused []Refused) {
	given = make([][]hca.HCA, len(s.Resources))
	for _, h := range hcas {
		to := s.first(h)
		if to < 0 {
			continue // nobody wants it
		}
		if owner, ok := s.claimed(h); ok {
			refused = append(refused, Refused{h, owner})
		} else if resource, ok := advertised(h); ok {
			refused = append(refused, Refused{h, "another device plugin, resource " + resource})
		} else {
			given[to] = append(given[to], h)
		}
	}
	return given, refused
}

func (s Settings) first(h hca.HCA) int {
	for i, r := range s.Resources {
		if r.Selects(h) {
			return i
		}
	}
	return -1
}

func (s Settings) claimed(h hca.HCA) (owner string, ok bool) {
	for _, c := range s.Claims {
		if c.Selects(h) {
			return c.Owner, true
		}
	}
	return "", false
}
