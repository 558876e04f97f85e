package controllers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// identityOf is the name under which memory servers know an index.
func identityOf(index *dmv1.DMIndex) string {
	if n := index.Annotations[dmv1.AnnotationIndexIncarnation]; n != "" {
		return string(index.UID) + "/" + n
	}
	return string(index.UID)
}

// nextIncarnation is what the annotation says after the index is made anew.
func nextIncarnation(index *dmv1.DMIndex) string {
	n, err := strconv.Atoi(index.Annotations[dmv1.AnnotationIndexIncarnation])
	if err != nil {
		n = 0
	}
	return strconv.Itoa(n + 1)
}

// imageFor is the image of the index's servers in pools of a transport; empty before one was
// pinned.
func imageFor(index *dmv1.DMIndex, t dmv1.Transport) string {
	if t == dmv1.TransportRDMA && index.Spec.Image == "" {
		return index.Annotations[dmv1.AnnotationImageRDMA]
	}
	return imageOf(index)
}

// imageOf is the image that an index's servers run; empty before one was pinned.
func imageOf(index *dmv1.DMIndex) string {
	if index.Spec.Image != "" {
		return index.Spec.Image
	}
	return index.Annotations[dmv1.AnnotationImage]
}

// recordedMemory are the memory servers on which the index was made, id to incarnation; nil before
// it was made.
func recordedMemory(index *dmv1.DMIndex) (map[uint16]uint64, error) {
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

// joinedMemory is a memory server that joined the index, as its annotation has it.
type joinedMemory struct {
	Incarnation uint64    `json:"incarnation"`
	State       joinState `json:"state"`
}

// joinState is how far a server is. The home has the state that counts; this one follows it.
type joinState string

const (
	isJoining joinState = "Joining" // nothing of the index lies there
	isMember  joinState = "Member"  // it is as those on which the index was made
	hasLeft   joinState = "Left"    // it never held anything, and does not join again
)

// joinedTo are the memory servers that joined an index since it was made.
func joinedTo(index *dmv1.DMIndex) (map[uint16]joinedMemory, error) {
	text := index.Annotations[dmv1.AnnotationJoined]
	if text == "" {
		return nil, nil
	}
	var joined map[uint16]joinedMemory
	if err := json.Unmarshal([]byte(text), &joined); err != nil {
		return nil, fmt.Errorf("annotation %s of index %s cannot be read (%w): put it back as it was, or delete the index", dmv1.AnnotationJoined, index.Name, err)
	}
	return joined, nil
}

// knownMemory are the ids of all servers that an index was made on or that joined it, also of those
// that left.
func knownMemory(index *dmv1.DMIndex) (ids []uint16, err error) {
	recorded, err := recordedMemory(index)
	if err != nil {
		return nil, err
	}
	joined, err := joinedTo(index)
	if err != nil {
		return nil, err
	}
	return slices.AppendSeq(slices.Collect(maps.Keys(recorded)), maps.Keys(joined)), nil
}
