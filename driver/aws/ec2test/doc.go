// Package ec2test is a stateful fake, for tests, of the parts of Amazon EC2 and STS that the driver
// uses: their query APIs with answers in XML, behind real HTTP, with signatures that are checked.
//
// It behaves as EC2 is documented to where the driver depends on it:
//
//   - A client token is kept for TokenLife. RunInstances with the same token and parameters answers
//     with the first instance, with other parameters it is refused, and so it is when the instance
//     has ended.
//   - An instance is not shown for Settings.VisibleAfter, and takes Settings.StopTime to end. One
//     that has ended is shown for another hour.
//   - Network interfaces and volumes of an instance have the tags of the request that created them,
//     and end with it or stay, as that says.
//   - Lists have pages with tokens. More requests than Settings.Rate allows are refused as EC2
//     does.
//
// It has failures on request: requests are refused with a code, carried out and not answered, cut
// at a number, or fail part-way. It needs no network of its own process, and is deterministic under
// a clock that is: nothing is random and nothing happens in the background.
package ec2test
