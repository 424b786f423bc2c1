// Package transaction carries out plans on the file system of a machine: all of a plan, or nothing
// of it, whenever the process is killed or the power fails (package journal has the rules).
//
// The order of one transaction:
//
//  1. The new contents and those that will be replaced are stored as objects, and synchronized.
//  2. The journal is written. From here on a crash is undone.
//  3. Folders are created; each file is written next to its path, given its owner and mode,
//     synchronized, and renamed. Then the folders are synchronized.
//  4. All paths are read and compared with what the plan requests.
//  5. The manifest is replaced: the commit. From here on a crash is continued.
//  6. Actions; for a reboot, the proof that the machine has booted again. Then the journal is
//     removed.
//
// Undo restores what was there before, in any state of 3 to 6, and may itself be interrupted at any
// point and repeated.
//
// Not guaranteed: readers see single files change one after the other while a transaction runs.
// Extended attributes, hard links and times of replaced files are not kept.
package transaction
