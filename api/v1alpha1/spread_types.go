package v1alpha1

// SpreadRule is how strictly pods are spread.
// +kubebuilder:validation:Enum=Preferred;Required
type SpreadRule string

const (
	SpreadPreferred SpreadRule = "Preferred"
	SpreadRequired  SpreadRule = "Required"
)

// Spread puts the pods of a pool into different zones and racks.
// +kubebuilder:validation:XValidation:rule="has(self.zones) || has(self.racks)",message="write zones, racks, or both: Preferred or Required"
// +kubebuilder:validation:XValidation:rule="has(self.racks) == has(self.rackLabel)",message="racks needs rackLabel, the label of nodes that names their rack, and rackLabel needs racks: write both or none"
type Spread struct {
	// Zones: Preferred spreads pods over zones as far as nodes have room. With Required a pod
	// waits rather than lie where its zone would have two more than another.
	// +optional
	Zones SpreadRule `json:"zones,omitempty"`

	// Racks is the same over racks.
	// +optional
	Racks SpreadRule `json:"racks,omitempty"`

	// RackLabel is the label of nodes that names their rack, such as example.com/rack.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RackLabel string `json:"rackLabel,omitempty"`
}
