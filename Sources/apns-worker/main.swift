print("apns-worker")
