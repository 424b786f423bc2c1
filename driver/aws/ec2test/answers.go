package ec2test

// requestID is the ID of every request.
const requestID = "00000000-0000-0000-0000-000000000000"

// errorAnswer is a refusal.
type errorAnswer struct {
	Code      string `xml:"Errors>Error>Code"`
	Message   string `xml:"Errors>Error>Message"`
	RequestID string `xml:"RequestID"`
}

type assumeAnswer struct {
	AccessKeyID     string `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
	SecretAccessKey string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
	SessionToken    string `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
	Expiration      string `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
	RequestID       string `xml:"ResponseMetadata>RequestId"`
}

type tagItem struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

type tagSet struct {
	Items []tagItem `xml:"item"`
}

type stateItem struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type reasonItem struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type prefixItem struct {
	Prefix string `xml:"ipv6Prefix"`
}

type nicItem struct {
	ID              string       `xml:"networkInterfaceId"`
	Status          string       `xml:"status"`
	SourceDestCheck bool         `xml:"sourceDestCheck"`
	DeviceIndex     *int         `xml:"attachment>deviceIndex"`
	CardIndex       *int         `xml:"attachment>networkCardIndex"`
	Prefixes        []prefixItem `xml:"ipv6PrefixSet>item"`
	Tags            tagSet       `xml:"tagSet"`
}

type volumeItem struct {
	ID     string `xml:"volumeId"`
	Status string `xml:"status"`
	Tags   tagSet `xml:"tagSet"`
}

type instanceItem struct {
	ID             string      `xml:"instanceId"`
	Image          string      `xml:"imageId"`
	State          stateItem   `xml:"instanceState"`
	PrivateDNSName string      `xml:"privateDnsName"`
	PrivateIP      string      `xml:"privateIpAddress"`
	MachineType    string      `xml:"instanceType"`
	Zone           string      `xml:"placement>availabilityZone"`
	Reason         *reasonItem `xml:"stateReason"`
	NICs           nicSet      `xml:"networkInterfaceSet"`
	Tags           tagSet      `xml:"tagSet"`
}

type nicSet struct {
	Items []nicItem `xml:"item"`
}

type instanceSet struct {
	Items []instanceItem `xml:"item"`
}

type reservationItem struct {
	ID        string      `xml:"reservationId"`
	Instances instanceSet `xml:"instancesSet"`
}

type reservationSet struct {
	Items []reservationItem `xml:"item"`
}

type describeInstancesAnswer struct {
	RequestID    string         `xml:"requestId"`
	Reservations reservationSet `xml:"reservationSet"`
	NextToken    string         `xml:"nextToken,omitempty"`
}

type runAnswer struct {
	RequestID string      `xml:"requestId"`
	ID        string      `xml:"reservationId"`
	Instances instanceSet `xml:"instancesSet"`
}

type changeItem struct {
	ID       string    `xml:"instanceId"`
	Current  stateItem `xml:"currentState"`
	Previous stateItem `xml:"previousState"`
}

type changeSet struct {
	Items []changeItem `xml:"item"`
}

type terminateAnswer struct {
	RequestID string    `xml:"requestId"`
	Changes   changeSet `xml:"instancesSet"`
}

type imageItem struct {
	ID         string `xml:"imageId"`
	RootDevice string `xml:"rootDeviceName"`
}

type imageSet struct {
	Items []imageItem `xml:"item"`
}

type describeImagesAnswer struct {
	RequestID string   `xml:"requestId"`
	Images    imageSet `xml:"imagesSet"`
}

type describeNICsAnswer struct {
	RequestID string `xml:"requestId"`
	NICs      nicSet `xml:"networkInterfaceSet"`
	NextToken string `xml:"nextToken,omitempty"`
}

type volumeSet struct {
	Items []volumeItem `xml:"item"`
}

type describeVolumesAnswer struct {
	RequestID string    `xml:"requestId"`
	Volumes   volumeSet `xml:"volumeSet"`
	NextToken string    `xml:"nextToken,omitempty"`
}

type doneAnswer struct {
	RequestID string `xml:"requestId"`
	Return    bool   `xml:"return"`
}

type prefixesAnswer struct {
	RequestID string   `xml:"requestId"`
	NIC       string   `xml:"networkInterfaceId"`
	Prefixes  []string `xml:"assignedIpv6PrefixSet>item"`
}
