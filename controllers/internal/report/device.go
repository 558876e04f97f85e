package report

// LongestDevice is how much of the name of a device a status has room for. The API server refuses
// the whole of a status with a longer text, and a server may say what it likes.
const LongestDevice = 64
