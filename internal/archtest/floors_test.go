package archtest

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/testkit/golden"
)

// floors are the trees of the house, the highest first. A folder is on the floor of the longest path that it is within; what is within none, as
// the end-to-end tests, is outside. Binaries are on the highest floor, those of drivers too.
var floors = [][]string{{"cmd"}, {"internal/replica"}, {"controllers"}, {"shard", "membership"}, {"internal"}, {"driver", "apis", "client"}}

// floorOf returns the floor of a folder, counted from the highest, and -1 outside.
func floorOf(folder string) int {
	if isBinary(folder) {
		return 0
	}
	floor, longest := -1, ""
	for i, trees := range floors {
		for _, tree := range trees {
			if within(folder, tree) && len(tree) > len(longest) {
				floor, longest = i, tree
			}
		}
	}
	return floor
}

// isBinary reports whether a folder has the main of a binary.
func isBinary(folder string) bool { return path.Base(path.Dir(folder)) == "cmd" }

// roomOf returns the room of a folder: a binary, or a folder below controllers, internal or shard with all below it, or else a tree.
func roomOf(folder string) string {
	if isBinary(folder) {
		return "cmd/" + path.Base(folder)
	}
	parts := strings.Split(folder, "/")
	if len(parts) > 1 && slices.Contains([]string{"controllers", "internal", "shard"}, parts[0]) {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// arrow is that a room imports another one.
type arrow struct{ from, to string }

// arrowsOf returns the arrows between rooms, each with the place of an import.
func arrowsOf(files []goFile) map[arrow]string {
	arrows := map[arrow]string{}
	for _, f := range files {
		if f.isTest() || isForTests(f) || floorOf(f.folder()) < 0 {
			continue
		}
		for i, imported := range f.imports() {
			folder, ours := strings.CutPrefix(imported, "./")
			a := arrow{roomOf(f.folder()), roomOf(folder)}
			if ours && floorOf(folder) >= 0 && a.from != a.to {
				arrows[a] = f.at(f.syntax.Imports[i])
			}
		}
	}
	return arrows
}

// noArrowPointsUp: a floor can be read, and tested, without those above it.
func noArrowPointsUp(files []goFile) (findings []string) {
	for a, at := range arrowsOf(files) {
		if floorOf(a.to) < floorOf(a.from) {
			findings = append(findings, fmt.Sprintf("%s: %s imports %s, which is on a higher floor", at, a.from, a.to))
		}
	}
	return findings
}

// noRoomsInCircles: rooms that reach each other are one room, for a reader.
func noRoomsInCircles(files []goFile) (findings []string) {
	arrows := arrowsOf(files)
	reached := map[arrow]bool{}
	var follow func(from, at string)
	follow = func(from, at string) {
		for a := range arrows {
			if next := (arrow{from, a.to}); a.from == at && !reached[next] {
				reached[next] = true
				follow(from, a.to)
			}
		}
	}
	for a := range arrows {
		follow(a.from, a.from)
	}
	for a, at := range arrows {
		if reached[arrow{a.to, a.from}] {
			findings = append(findings, fmt.Sprintf("%s: %s imports %s, which reaches it again", at, a.from, a.to))
		}
	}
	return findings
}

func TestRoomsInACircleAreFound(t *testing.T) {
	var files []goFile
	for from, to := range map[string]string{"internal/a": "shard/b/c", "shard/b": "shard/d", "shard/d": "internal/a/c", "shard/e": "shard/d"} {
		file, err := parse(from+"/a.go", []byte(importing("a", module+"/"+to)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if findings := noRoomsInCircles(files); len(findings) != 3 {
		t.Errorf("want the 3 arrows of a circle, got %q", findings)
	}
}

const (
	housePage = "docs/architecture/house.md"
	houseHead = "<!-- Made by TestHouse of internal/archtest. -->\n```text"
	houseTail = "```\n<!-- The end of the house. -->"
)

// TestHouse makes the picture of the floors and their rooms.
func TestHouse(t *testing.T) {
	arrows := slices.Collect(maps.Keys(arrowsOf(load(t))))
	between, into, rooms := map[[2]int]int{}, map[string]int{}, make([]map[string]bool, len(floors))
	for i := range rooms {
		rooms[i] = map[string]bool{}
	}
	for _, a := range arrows {
		between[[2]int{floorOf(a.from), floorOf(a.to)}]++
		into[a.to]++
		rooms[floorOf(a.from)][a.from], rooms[floorOf(a.to)][a.to] = true, true
	}
	var picture strings.Builder
	for i, trees := range floors {
		name := strings.Join(trees, ", ")
		var names []string
		for _, room := range slices.Sorted(maps.Keys(rooms[i])) {
			short := room
			if !slices.Contains(trees, room) {
				short = strings.TrimPrefix(room, trees[0]+"/")
			}
			names = append(names, fmt.Sprintf("%s %d", short, into[room]))
		}
		writeWrapped(&picture, name, names)
		var down []string
		for below := range floors {
			if n := between[[2]int{i, below}]; n > 0 {
				down = append(down, fmt.Sprintf("%d to %s", n, strings.Join(floors[below], "/")))
			}
		}
		if len(down) > 0 {
			writeWrapped(&picture, "", append([]string{"└─► " + down[0]}, down[1:]...))
		}
	}
	compareSection(t, housePage, houseHead, houseTail, strings.TrimSuffix(picture.String(), "\n"))
}

// writeWrapped writes a name and the words of it, on lines of at most 140 characters.
func writeWrapped(to *strings.Builder, name string, words []string) {
	line := fmt.Sprintf("%-22s", name)
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if len(line)+1+len(word) > 140 {
			to.WriteString(strings.TrimRight(line, " ") + "\n")
			line = strings.Repeat(" ", 22)
		}
		line += " " + word
	}
	to.WriteString(strings.TrimRight(line, " ") + "\n")
}

// compareSection compares what is between two lines of a page, or writes it.
func compareSection(t *testing.T, page, head, tail, section string) {
	t.Helper()
	text := string(read(t, page))
	before, rest, found := strings.Cut(text, head)
	_, after, ended := strings.Cut(rest, tail)
	if !found || !ended {
		t.Fatalf("%s has no section after %s", page, head)
	}
	golden.Compare(t, filepath.Join(root, page), before+head+"\n"+section+"\n"+tail+after)
}
