package apitest

// NotHeld reports that deletions in a namespace are not held.
func NotHeld(string) (why string, held bool) { return "", false }
