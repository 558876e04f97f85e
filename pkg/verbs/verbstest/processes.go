package verbstest

var processTests = []test{}
