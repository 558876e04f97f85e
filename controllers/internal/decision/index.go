package decision

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Identity is the name under which memory servers know an index.
func Identity(index *dmv1.DMIndex) string {
	if n := index.Annotations[dmv1.AnnotationIndexIncarnation]; n != "" {
		return string(index.UID) + "/" + n
	}
	return string(index.UID)
}

// NextIncarnation is what the annotation says after the index is made anew.
func NextIncarnation(index *dmv1.DMIndex) string {
	n, err := strconv.Atoi(index.Annotations[dmv1.AnnotationIndexIncarnation])
	if err != nil {
		n = 0
	}
	return strconv.Itoa(n + 1)
}

// ImageFor is the image of the index's servers in pools of a transport; empty before one was
// pinned.
func ImageFor(index *dmv1.DMIndex, t dmv1.Transport) string {
	if t == dmv1.TransportRDMA && index.Spec.Image == "" {
		return index.Annotations[dmv1.AnnotationImageRDMA]
	}
	return ImageOf(index)
}

// ImageOf is the image that an index's servers run; empty before one was pinned.
func ImageOf(index *dmv1.DMIndex) string {
	if index.Spec.Image != "" {
		return index.Spec.Image
	}
	return index.Annotations[dmv1.AnnotationImage]
}

// Memory are the memory servers on which the index was made, id to incarnation; nil before
// it was made.
func Memory(index *dmv1.DMIndex) (map[uint16]uint64, error) {
	text := index.Annotations[dmv1.AnnotationMemory]
	if text == "" {
		return nil, nil
	}
	var recorded map[uint16]uint64
	if err := json.Unmarshal([]byte(text), &recorded); err != nil || len(recorded) == 0 {
		return nil, fmt.Errorf("annotation %s of index %s cannot be read (%w): put it back as it was, or delete the index", dmv1.AnnotationMemory, index.Name, err)
	}
	return recorded, nil
}

// Joined is a memory server that joined the index, as its annotation has it.
type Joined struct {
	Incarnation uint64    `json:"incarnation"`
	State       JoinState `json:"state"`
}

// JoinState is how far a server is. The home has the state that counts; this one follows it.
type JoinState string

const (
	Joining JoinState = "Joining" // nothing of the index lies there
	Member  JoinState = "Member"  // it is as those on which the index was made
	Left    JoinState = "Left"    // it never held anything, and does not join again
)

// JoinedTo are the memory servers that joined an index since it was made.
func JoinedTo(index *dmv1.DMIndex) (map[uint16]Joined, error) {
	text := index.Annotations[dmv1.AnnotationJoined]
	if text == "" {
		return nil, nil
	}
	var joined map[uint16]Joined
	if err := json.Unmarshal([]byte(text), &joined); err != nil {
		return nil, fmt.Errorf("annotation %s of index %s cannot be read (%w): put it back as it was, or delete the index", dmv1.AnnotationJoined, index.Name, err)
	}
	return joined, nil
}

// KnownMemory are the ids of all servers that an index was made on or that joined it, also of those
// that left.
func KnownMemory(index *dmv1.DMIndex) (ids []uint16, err error) {
	recorded, err := Memory(index)
	if err != nil {
		return nil, err
	}
	joined, err := JoinedTo(index)
	if err != nil {
		return nil, err
	}
	return slices.AppendSeq(slices.Collect(maps.Keys(recorded)), maps.Keys(joined)), nil
}
