package main

import "testing"

// What is listed as code to mutate exists: a file or function that was moved would not be mutated
// any more.
func TestAreasHaveCode(t *testing.T) {
	for _, a := range areas("1", "1") {
		for _, file := range a.files {
			found, err := find("../..", []string{file}, numbers())
			if err != nil {
				t.Error(err)
			} else if len(found) == 0 {
				t.Errorf("%s: want mutants of %s, got none", a.name, file)
			}
		}
	}
}
