"""Rules: `Machine` x matrix -> findings. Pure; nothing here touches the host."""
